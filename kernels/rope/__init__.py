"""Rotary position embedding by an NKI kernel."""
