"""Credit methods of others, one module each, for comparison. PyTorch is imported with the first one used."""

from secret_rl.credit.base import register_method

RIVALS = {
    "rudder": "rudder",
    "rudder-transformer": "rudder",
    "return-decomposition": "return_decomposition",
    "diaster": "diaster",
    "synthetic-returns": "synthetic_returns",
    "hindsight": "hindsight",
    "value-transport": "value_transport",
    "secret-paper": "secret_paper",
    "secret-attention-x-value": "readouts",
    "secret-leave-one-out": "readouts",
    "secret-gradient": "readouts",
    "secret-integrated-gradients": "readouts",
}
"""Module of each method."""
for _name, _module in RIVALS.items():
    register_method(_name, module=f"{__name__}.{_module}")
