//! ALFWorld's text engine and the household game generator.
