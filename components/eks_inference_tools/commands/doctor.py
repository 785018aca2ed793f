"""``eks-inference doctor``: asks the account what only the account knows, before ``pulumi up``."""

import argparse
import os

from stackgraph.commands.options import add_document, add_program, add_stack, output_file

HELP = "ask the AWS account whether a stack can be deployed there; changes nothing"
EXAMPLES = (
    "doctor smoke-gpu",
    "doctor inf2-llama3 --iam-policy",
    "doctor inf2-llama3 --write-prices prices.yaml",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Asks the AWS account, in the stack's region and with its profile, for what only the account knows: quotas, offerings, "
        "reservations, names, images, prices. Only reads. Exit code 2 when the stack cannot be deployed there (docs/doctor.md)."
    )
    add_stack(parser)
    parser.add_argument("--strict", action="store_true", help="also exit with 2 when something was not judged")
    parser.add_argument("--no-web", action="store_true", help="ask AWS only, not public image registries or the Hugging Face Hub")
    parser.add_argument(
        "--iam-policy", action="store_true", help="print the least IAM policy that this needs, and ask the account nothing"
    )
    parser.add_argument(
        "--write-prices", metavar="FILE", type=output_file, help="write the region's prices of today, a file for --prices"
    )
    add_program(parser)
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.doctor.examine import examine, needed_policy
    from eks_inference_tools.program import PROFILE_KEY, program
    from stackgraph.presentation.output import drawing, json_text, write
    from stackgraph.presentation.progress import Progress

    stack = program(options.stack, options.program, debug=options.debug, answers=options.answers)
    graph = stack.record()
    if options.iam_policy:
        write(json_text(needed_policy(graph)), options.output)
        return 0

    from eks_inference_tools.doctor import report
    from eks_inference_tools.doctor.account import open_account
    from eks_inference_tools.doctor.price_list import price_file
    from eks_inference_tools.doctor.web import Web
    from eks_inference_tools.hub import TOKEN_VARIABLE

    account = open_account(stack.config.values.get(PROFILE_KEY, ""))
    web = None if options.no_web else Web(os.environ.get(TOKEN_VARIABLE, ""))
    with Progress() as progress:
        findings = examine(
            graph, account, web, progress=lambda done, of: progress.show(f"asking the account: {done} of {of} answers")
        )
    if options.write_prices:
        write(price_file(findings), options.write_prices)
    if options.format == "json":
        shown = report.document(stack.stack, findings)
    else:
        shown = report.shown(stack.stack, findings, **drawing(options.output))
    write(shown, options.output)
    verdicts = {finding.verdict for finding in findings}
    return 2 if "error" in verdicts or (options.strict and "unknown" in verdicts) else 0
