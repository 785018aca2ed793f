"""A program without a cluster, recorded, shown and compared where nothing else of this repository can be imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stackgraph

PROGRAM = """\
import pulumi
import pulumi_aws as aws


class Archive(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("acme:index:Archive", name, {})
        inside = pulumi.ResourceOptions(parent=self)
        config = pulumi.Config()
        self.bucket = aws.s3.Bucket(f"{name}-bucket", bucket=config.require("bucket"), opts=inside)
        aws.s3.BucketPublicAccessBlock(
            f"{name}-block", bucket=self.bucket.id, block_public_acls=config.require_bool("closed"), opts=inside
        )
        aws.ssm.Parameter(f"{name}-token", type="SecureString", value=config.require_secret("token"), opts=inside)
        self.register_outputs({})


archive = Archive("archive")
suffix = pulumi.CustomResource("random:index/randomId:RandomId", "suffix", {"byteLength": 4})
aws.sqs.Queue("arrivals", name="in", opts=pulumi.ResourceOptions(depends_on=[archive, suffix]))
pulumi.export("bucket", archive.bucket.arn)
"""

STEPS = """\
import json, sys
from pathlib import Path

for absent in ("eks_inference", "eks_inference_tools"):
    sys.modules[absent] = None

from stackgraph.diff.contents import Revision
from stackgraph.diff.document import render_json
from stackgraph.diff.markdown import render_markdown
from stackgraph.diff.page import render_html as render_comparison
from stackgraph.diff.report import Recorded, Report, StackReport
from stackgraph.diff.telling import contents
from stackgraph.diff.text import render_text
from stackgraph.recorder.recording import record
from stackgraph.views.mermaid import render_mermaid
from stackgraph.views.page import render_html
from stackgraph.views.tree import render_tree


def recorded(bucket, closed):
    config = {"acme:bucket": bucket, "acme:closed": closed, "acme:token": "never-shown", "aws:region": "eu-west-1"}
    main = Path("__main__.py").resolve()
    return record(main, project="acme", stack="dev", config=config, secret_keys={"acme:token"}, root=main.parent)


base, head = recorded("first", "true"), recorded("second", "false")
report = Report("acme", Revision("main"), Revision("branch"), [StackReport("dev", Recorded(base), Recorded(head))])
json.dump(
    {
        "tree": render_tree(base),
        "page": render_html(base),
        "mermaid": render_mermaid(base),
        "diff": render_json(report),
        "text": render_text(contents(report)),
        "comment": render_markdown(contents(report), 65_536),
        "diff page": render_comparison(contents(report)),
    },
    sys.stdout,
)
"""

TREE = """\
dev  project acme
would create 6 resources: 4 AWS, 1 other, 1 component
2 default providers not listed

random.RandomId  suffix
sqs.Queue        arrivals  in
archive  Archive                                                                                   3 resources
├─ s3.Bucket                   …bucket  first
├─ ssm.Parameter               …token
└─ s3.BucketPublicAccessBlock  …block

Outputs
  bucket  <archive-bucket.arn>

<a.b> is known when a is deployed
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("acme")
    (folder / "__main__.py").write_text(PROGRAM)
    environment = {"PYTHONPATH": str(Path(stackgraph.__file__).parents[1]), "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", STEPS], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.thorough
def test_the_tree_has_the_programs_resources_and_outputs(shown: dict[str, str]) -> None:
    assert shown["tree"] == TREE


def test_page_and_diagram_have_them_too(shown: dict[str, str]) -> None:
    assert "Would create 6 resources" in shown["page"]
    assert all(f'id="r-{name}"' in shown["page"] for name in ("archive", "archive-bucket", "archive-block", "arrivals"))
    assert 'n_archive["archive<br/>Archive<br/>3 resources"]' in shown["mermaid"]


def test_the_comparison_warns_of_what_is_lost_and_opened(shown: dict[str, str]) -> None:
    report: dict[str, Any] = json.loads(shown["diff"])
    assert report["summary"] | {"same": 0} == {
        "create": 0,
        "update": 0,
        "replace": 2,
        "delete": 0,
        "move": 0,
        "dependencies": 0,
        "same": 0,
    }
    assert {danger["kind"] for danger in report["danger"]} == {"data-replaced", "replaced", "protection-removed"}
    for name in ("text", "comment", "diff page"):
        assert "s3.Bucket archive-bucket is replaced and loses its objects (bucket)" in shown[name], name
        assert "loses blockPublicAcls" in shown[name], name


def test_no_view_shows_the_secret(shown: dict[str, str]) -> None:
    assert not [name for name, text in shown.items() if "never-shown" in text]
