"""Facts as data: instance types, engines, models, zones, images and pins, each row with its source and date.

No code below ``components/`` compares the name of a row; it asks for a column. A test keeps it so. To add

- a model: a table of ``models.toml``. ``gated`` lists its repositories that want a licence accepted first; a table of
  ``owners.toml`` says it of everything an owner has. ``counted_parameters`` is for models that are not built as Llama. Engines
  that serve an architecture which is new here name it in ``engines.toml``.
- a size of an instance family: a line of ``instances.toml``.
- an instance family: a table of ``instances.toml`` (devices, cores, disks, and how its network cards carry EFAs:
  ``first_efa_card``, ``ip_card_step``), and its zones in ``zones.toml``. A chip that is new here is named by ``chips`` of the
  Neuron engines that have kernels for it; GPUs are known by their compute capability.
- a release of an engine: a table of ``engines.toml``. The image of a Neuron SDK that ``versions.toml`` does not know says its
  ``minimum_driver``. Metrics that are called otherwise: ``metric_names``.
- a generation of engines: a table of ``generations.toml`` (layout and bounds of the KV cache, compile cache and its variable,
  flags that must agree), and the ``generation`` of its engines.
- instance types on which a KV cache can be moved between servers: ``connectors.toml``.
- a version of Kubernetes, a chart, an image, an add-on, an AMI release: ``versions.toml``.
"""
