"""Runs etcd, an API server, controllers and kwok on loopback: programs, processes, a client."""
