"""Where things run: what nodes offer, the value that connects pools and workloads, claims of devices, where handles belong."""
