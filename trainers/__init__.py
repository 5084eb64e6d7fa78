"""The reference trainer: a torchtitan module with three paths to the same Qwen3."""
