"""Lists of what the catalog knows: instance types, models, engines. Pure."""
