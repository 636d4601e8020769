//! Which vector instructions the kernels run on, and how one generic body is compiled for each.
//!
//! The choice never changes a result, only its speed. [`InstructionSet::scope`] exists so that tests and measurements
//! can compare the paths.
//!
//! Not for: the operations themselves.

use std::cell::Cell;
use std::sync::OnceLock;

/// A set of vector instructions that every kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// Plain Rust; the compiler vectorises for the target's baseline (NEON on aarch64).
    Portable,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors.
    Avx512,
}

thread_local! {
    static FORCED: Cell<Option<InstructionSet>> = const { Cell::new(None) };
}

impl InstructionSet {
    /// Every set this processor can run, slowest first.
    pub fn available() -> Vec<Self> {
        [Self::Portable, Self::Avx2, Self::Avx512]
            .into_iter()
            .filter(|set| set.is_available())
            .collect()
    }

    /// Whether this processor can run the set.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// The set that kernels called on this thread use: the one in [`InstructionSet::scope`], or the fastest available.
    pub fn current() -> Self {
        static FASTEST: OnceLock<InstructionSet> = OnceLock::new();
        FORCED.get().unwrap_or_else(|| {
            *FASTEST.get_or_init(|| {
                if Self::Avx512.is_available() {
                    Self::Avx512
                } else if Self::Avx2.is_available() {
                    Self::Avx2
                } else {
                    Self::Portable
                }
            })
        })
    }

    /// Runs `body` with every kernel that this thread calls in it (and the tasks those kernels spawn) on this set.
    ///
    /// # Panics
    ///
    /// Panics when the processor lacks the set.
    pub fn scope<R>(self, body: impl FnOnce() -> R) -> R {
        struct Restore(Option<InstructionSet>);
        impl Drop for Restore {
            fn drop(&mut self) {
                FORCED.set(self.0);
            }
        }
        assert!(
            self.is_available(),
            "this processor has no `{self:?}`; use one of `InstructionSet::available()`"
        );
        let _restore = Restore(FORCED.replace(Some(self)));
        body()
    }
}

/// Declares a function that takes an [`InstructionSet`] first and runs the generic body `$body::<V>` compiled for it.
///
/// The set must have come from [`InstructionSet::current`] or have been checked with
/// [`InstructionSet::is_available`].
macro_rules! dispatched {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)? = $body:ident;) => {
        $(#[$meta])*
        $vis fn $name(set: $crate::instruction_set::InstructionSet, $($argument: $kind),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma")]
            fn avx512($($argument: $kind),*) $(-> $result)? {
                $body::<$crate::lanes::Avx512>($($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($argument: $kind),*) $(-> $result)? {
                $body::<$crate::lanes::Avx2>($($argument),*)
            }
            match set {
                // SAFETY: sets reach this point only through `current` and `scope`, which check the processor.
                #[cfg(target_arch = "x86_64")]
                $crate::instruction_set::InstructionSet::Avx512 => unsafe { avx512($($argument),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::instruction_set::InstructionSet::Avx2 => unsafe { avx2($($argument),*) },
                _ => $body::<$crate::lanes::Portable>($($argument),*),
            }
        }
    };
}
pub(crate) use dispatched;
