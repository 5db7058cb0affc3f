"""ApiVersions: which APIs are served, in which versions, and the features of the cluster (KIP-35, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from replog.errors import BrokerNotAvailableError, ErrorCode, InvalidRequestError
from replog.metadata.features import SUPPORTED_FEATURES
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.node import KafkaNode
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

LEVEL_0_FROM = 4
"""The first version whose clients can read a feature of which level 0 is supported; others are not told of it (KAFKA-17492)."""

SOFTWARE_FROM = 3
"""The first version in which a client says what it is (KIP-511)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def api_versions(
    node: KafkaNode, request: ApiVersionsRequest, version: int, advertised: Mapping[int, range]
) -> ApiVersionsResponse:
    """Returns the APIs that are served, and the features of the cluster.

    Args:
        node: The node that answers.
        request: The request.
        version: The version of the request.
        advertised: The versions of each API, by its key.

    Raises:
        InvalidRequestError: The name or version that the client gives itself is not a valid one.
    """
    for name in (request.client_software_name, request.client_software_version):
        if version >= SOFTWARE_FROM and not _SOFTWARE.fullmatch(name):
            raise InvalidRequestError(
                f"{name!r} is no name or version of a client's software: letters, digits, '.' and '-'"
            )
    try:
        image = node.image
    except (
        BrokerNotAvailableError
    ):  # it has just started: what it serves is known, what the cluster has decided not yet
        image = MetadataImage()
    return ApiVersionsResponse(
        api_keys=_ranges(advertised.items()),
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(feature.name, feature.min_level, feature.max_level)
            for feature in SUPPORTED_FEATURES
            if feature.min_level or version >= LEVEL_0_FROM
        ],
        finalized_features_epoch=image.end_offset,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name, level, level) for name, level in image.features.items()
        ],
    )


def unsupported(advertised: Mapping[int, range]) -> ApiVersionsResponse:
    """Returns the answer to an ApiVersions of an unknown version: the versions that there are of it."""
    key = ApiVersionsRequest.API_KEY
    own = [(key, advertised[key])]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges(own))


def _ranges(versions: Iterable[tuple[int, range]]) -> list[ApiVersionsResponse.ApiVersion]:
    return [ApiVersionsResponse.ApiVersion(key, served[0], served[-1]) for key, served in sorted(versions)]
