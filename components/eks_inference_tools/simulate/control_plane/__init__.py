"""Real etcd, API server, controllers and kwok on loopback: programs, processes, client."""
