"""A HorizontalPodAutoscaler replayed: real Prometheus, real controller, the stack's own rules and objects, simulated servers."""
