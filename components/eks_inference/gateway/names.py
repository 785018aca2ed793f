"""Creates what the hosts of a gateway need: a certificate that a zone validates, and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws

from eks_inference.late import Late
from eks_inference.settings import StackSettings

_TTL_SECONDS = 60


def validated_certificate(
    name: str, hosts: Sequence[str], zone_id: Late, *, settings: StackSettings, parent: pulumi.Resource
) -> pulumi.Output[str]:
    """Creates a certificate for hosts and what proves to ACM that they are ours. Returns its ARN once it is valid.

    The proof stays, because ACM renews a certificate only where it finds it (ACM user guide, "DNS validation").
    """
    first, *others = hosts
    certificate = aws.acm.Certificate(
        f"{name}-certificate",
        domain_name=first,
        subject_alternative_names=others or None,
        validation_method="DNS",
        tags={**settings.tags, "Name": name},
        # A certificate in use cannot be deleted, so the load balancer has to get its successor first.
        opts=pulumi.ResourceOptions(parent=parent, delete_before_replace=False),
    )
    proofs = [
        aws.route53.Record(
            f"{name}-certificate-{position}",
            zone_id=zone_id,
            name=certificate.domain_validation_options[position].resource_record_name,
            type=certificate.domain_validation_options[position].resource_record_type,
            records=[certificate.domain_validation_options[position].resource_record_value],
            ttl=_TTL_SECONDS,
            # Another certificate for the host has the same proof.
            allow_overwrite=True,
            opts=pulumi.ResourceOptions(parent=parent),
        )
        for position in range(len(hosts))
    ]
    validation = aws.acm.CertificateValidation(
        f"{name}-certificate-validation",
        certificate_arn=certificate.arn,
        validation_record_fqdns=[proof.fqdn for proof in proofs],
        opts=pulumi.ResourceOptions(parent=parent),
    )
    return validation.certificate_arn


def host_records(
    name: str, addresses: Mapping[str, pulumi.Input[str]], zone_id: Late, *, parent: pulumi.Resource
) -> dict[str, aws.route53.Record]:
    """Creates a record for each host that leads to the address of its load balancer."""
    return {
        host: aws.route53.Record(
            f"{name}-{host}",
            zone_id=zone_id,
            name=host,
            # An alias would need the zone of the load balancer, which only AWS tells.
            type="CNAME",
            records=[address],
            ttl=_TTL_SECONDS,
            opts=pulumi.ResourceOptions(parent=parent),
        )
        for host, address in addresses.items()
    }
