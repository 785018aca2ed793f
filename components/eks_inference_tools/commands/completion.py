"""``eks-inference completion``: prints what makes a shell complete commands, options and values."""

import argparse

from stackgraph.commands.options import add_document

HELP = "print the completion script of a shell"
EXAMPLES = ("completion bash",)
SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints a script after which the shell completes commands, options, stacks, and values of the catalog. For bash, in "
        "~/.bashrc: source <(eks-inference completion bash). For zsh, in ~/.zshrc after compinit: source "
        "<(eks-inference completion zsh). For fish, once: eks-inference completion fish "
        "-o ~/.config/fish/completions/eks-inference.fish"
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    add_document(parser)


def run(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    from stackgraph.presentation.output import write

    write(shellcode(["eks-inference"], use_defaults=False, shell=options.shell), options.output)
    return 0
