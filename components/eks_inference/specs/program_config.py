"""What the configuration of the running program says. Loads pulumi when asked, for specs that read stack files without it."""

from pathlib import Path


def project_folder() -> Path | None:
    """Returns the folder of the project that runs; None where nothing says it."""
    import pulumi

    folder = pulumi.get_root_directory()
    return Path(folder) if folder else None


def aws_setting(key: str) -> str | None:
    """Returns the value of ``aws:<key>``, which the default AWS provider of the program has as well."""
    import pulumi

    return pulumi.Config("aws").get(key)
