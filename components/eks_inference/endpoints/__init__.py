"""One address for several models: who may ask, which server answers, and what happens to a stream when a pod goes."""
