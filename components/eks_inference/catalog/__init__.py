"""Facts as data: instance types, engines, models, zones, images and pinned versions, each row with its source and date.

No code below ``components/`` compares the name of a row; code reads columns. A test enforces this. To add

- a model: add a table to ``models.toml``. ``gated`` lists its repositories whose licence must be accepted first; a table in
  ``owners.toml`` says so for every repository of an owner. ``counted_parameters`` is for architectures without a formula.
  Engines that serve a new architecture list it in ``engines.toml``.
- an architecture: add a table to ``architectures.toml``, and evidence to ``tests/data/model_configs``.
- a size of an instance family: add a line to ``instances.toml``.
- an instance family: add a table to ``instances.toml`` (devices, cores, disks, and which network cards carry EFA interfaces:
  ``first_efa_card``, ``ip_card_step``) and its zones to ``zones.toml``. Neuron engines list a new chip in ``chips`` if they have
  kernels for it; GPU engines match by compute capability.
- an engine release: add a table to ``engines.toml``. If ``versions.toml`` does not list the image's Neuron SDK, give
  ``minimum_driver``. If the release uses other metric names, give ``metric_names``. Add its name to the table of
  ``features.toml`` whose features its documents have, or add a table; without one it has no features.
- an engine generation: add a table to ``generations.toml`` (layout and bounds of the KV cache, compile cache and its variable,
  flags that must agree) and name it in ``generation`` of its engines.
- a feature of engines: add a key to ``serving/features.py``, and its flags to the tables of ``features.toml``.
- a release of vLLM: `make refresh TABLE=vllm_arguments`, and compare its checks with ``vllm_combinations.toml``.
- what DRA drivers publish of an instance family, or a driver: add a table to ``claims.toml``.
- instance types that can move a KV cache between servers: extend ``connectors.toml`` (static pairs) or ``nixl.toml``, which also
  has what no document settles about NIXL: ``[facts]``.
- what EC2 takes for root disks, or a release of the AMI that changes parallel image pulls: edit ``disks.toml``.
- an instance type or a region: derive ``prices_instances.json`` anew, and add the family to its quotas in ``quotas.toml``.
- a price of a service: add it to the list of its source in ``prices.toml``, or add a list. ``[services]`` has what costs money.
- a price of an instance that ``prices_instances.json`` lacks, or of a capacity block: the last tables there.
- what opens an engine, an interface or a chart: add a table to ``openings.toml``.
- a version of Kubernetes, a chart, an image, an add-on, an AMI release: extend ``versions.toml``.
"""
