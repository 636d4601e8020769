"""Writes adamw.txt: parameters and moments of torch.optim.AdamW after each of five steps.

One line per step: gradients, parameters, first moments, second moments (16 values each, float32 bits in hexadecimal).
The first line holds the initial parameters. Made with PyTorch 2.15 on a CPU: `python adamw.py > adamw.txt`.
"""

import torch


def bits(values):
    return " ".join(f"{value & 0xFFFFFFFF:08x}" for value in values.detach().view(torch.int32).tolist())


generator = torch.Generator().manual_seed(7)
parameter = torch.nn.Parameter(torch.randn(16, generator=generator))
optimiser = torch.optim.AdamW(
    [parameter], lr=0.003, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, foreach=False, fused=False
)
print(bits(parameter))
for step in range(5):
    parameter.grad = torch.randn(16, generator=generator) * 10.0 ** (step - 3)
    optimiser.step()
    state = optimiser.state[parameter]
    print(bits(parameter.grad), bits(parameter), bits(state["exp_avg"]), bits(state["exp_avg_sq"]))
