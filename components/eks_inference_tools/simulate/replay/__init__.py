"""Replays a HorizontalPodAutoscaler: real Prometheus and controller, the stack's own rules and objects, simulated servers."""
