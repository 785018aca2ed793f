"""What the configuration of the running program says. Loads pulumi when asked, for specs that read stack files without it."""


def aws_setting(key: str) -> str | None:
    """Returns the value of ``aws:<key>``, which the default AWS provider of the program has as well."""
    import pulumi

    return pulumi.Config("aws").get(key)
