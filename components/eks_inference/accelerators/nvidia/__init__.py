"""The device plugin of NVIDIA GPUs."""
