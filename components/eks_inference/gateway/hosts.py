"""Creates what the hosts of a gateway need: a certificate that a zone validates, and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws

from eks_inference.specs.late import Late
from eks_inference.specs.settings import StackSettings

_TTL_SECONDS = 60


def validated_certificate(
    name: str, hosts: Sequence[str], zone_id: Late, *, settings: StackSettings, parent: pulumi.Resource
) -> pulumi.Output[str]:
    """Creates a certificate for hosts and what proves to ACM that they are ours. Returns its ARN once it is valid.

    The proof stays, because ACM renews a certificate only where it finds it (ACM user guide, "DNS validation").
    """
    # Other names make another certificate, so the order of routes must not.
    first, *others = hosts = sorted(hosts)
    certificate = aws.acm.Certificate(
        f"{name}-certificate",
        domain_name=first,
        subject_alternative_names=others or None,
        validation_method="DNS",
        tags={**settings.tags, "Name": name},
        # A certificate in use cannot be deleted, so the load balancer has to get its successor first.
        opts=pulumi.ResourceOptions(parent=parent, delete_before_replace=False),
    )
    proofs = [_proof(f"{name}-{host}-certificate", host, certificate, zone_id, parent=parent) for host in hosts]
    validation = aws.acm.CertificateValidation(
        f"{name}-certificate-validation",
        certificate_arn=certificate.arn,
        validation_record_fqdns=[proof.fqdn for proof in proofs],
        opts=pulumi.ResourceOptions(parent=parent),
    )
    return validation.certificate_arn


def _proof(
    name: str, host: str, certificate: aws.acm.Certificate, zone_id: Late, *, parent: pulumi.Resource
) -> aws.route53.Record:
    """Creates the record that proves one host. Its name is of the host: no other host of the certificate moves it.

    The options are a set (aws.acm.Certificate), so their order says nothing, and another host changes it.
    """
    option = certificate.domain_validation_options.apply(lambda options: _option_of(host, options))
    return aws.route53.Record(
        name,
        zone_id=zone_id,
        name=option.resource_record_name,
        type=option.resource_record_type,
        records=[option.resource_record_value],
        ttl=_TTL_SECONDS,
        # Another certificate for the host has the same proof.
        allow_overwrite=True,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _option_of(
    host: str, options: Sequence[aws.acm.outputs.CertificateDomainValidationOption] | None
) -> aws.acm.outputs.CertificateDomainValidationOption:
    """Returns what ACM wants to find in the zone for a host. Raises ``LookupError`` where it has not said yet.

    The provider waits for the record of one host only; it asks ACM again when it refreshes (terraform-provider-aws,
    internal/service/acm/certificate.go, waitCertificateDomainValidationsAvailable).
    """
    for option in options or ():
        if option.domain_name == host:
            return option
    raise LookupError(f"ACM has not said yet which record proves {host}; run `pulumi up --refresh`, which asks it again")


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
