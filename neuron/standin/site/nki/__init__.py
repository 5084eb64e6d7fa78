"""trncheck's stand-in for NKI: its simulator under the name that kernels import."""

from nki.standin import whole

globals().update({name: value for name, value in vars(whole).items() if not name.startswith("__")})

__version__ = "stand-in"
