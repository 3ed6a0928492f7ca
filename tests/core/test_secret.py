"""No path contains a password, and no output shows what an address holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.location import absolute_root, source_location
from airflow_mv_provider.core.secret import every_spelling, of_connect_address, without
from airflow_mv_provider.exceptions import UnsafeLocationError

CANARY = "c4n4ry"


@pytest.mark.parametrize(
    "path",
    [
        *(f"s3a://key:{CANARY}@bucket/in/x", f"s3://key:{CANARY}/with/slashes@bucket/in", f"gs://:{CANARY}@bucket/in"),
        *(f"hdfs://anna:{CANARY}@nn:8020/in", f"abfss://box@account:{CANARY}@host/in", f"S3A://key:{CANARY}@bucket/x"),
        *(f"s3a://key%3A{CANARY}@bucket/in", f"s3a://key:1234{CANARY}@bucket/in"),
    ],
)
def test_path_with_a_password_is_refused_and_not_shown(path):
    for refuse in (lambda: source_location(path, "/wh", [path]), lambda: absolute_root(path)):
        with pytest.raises(UnsafeLocationError, match="contains a password") as caught:
            refuse()

        assert CANARY not in str(caught.value)
        assert caught.value.advice


@pytest.mark.parametrize(
    "path", [f"jdbc:postgresql://h/d?password={CANARY}", f"http://anna:{CANARY}@h/x", f"ftp:{CANARY}", f"x:{CANARY}"]
)
def test_of_a_scheme_that_is_refused_only_the_scheme_is_shown(path):
    with pytest.raises(UnsafeLocationError, match=r"the scheme of .* is not allowed") as caught:
        source_location(path, "/wh")

    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "root",
    [
        *("s3://bucket/wh", "hdfs://nn:8020/wh", "hdfs://nn:8020", "hdfs://anna@nn:8020/wh", "file:///wh", "/wh/a:b@c"),
        *("abfss://box@account.dfs.core.windows.net/wh", "s3a://bucket/day=2013-01-01/at=10:30@x"),
    ],
)
def test_place_without_a_password_is_taken(root):
    assert absolute_root(root) == root.removeprefix("file://")


@pytest.mark.parametrize(
    ("remote", "secrets"),
    [
        (None, ()),
        ("sc://h:1/;token=c4n4ry;use_ssl=true", ("sc://h:1/;token=c4n4ry;use_ssl=true", "c4n4ry")),
        ("sc://h/;x-auth=Bearer c4n4ry", ("Bearer c4n4ry", "Bearer%20c4n4ry", "Bearer+c4n4ry")),
        ("sc://h/;user_id=anna", ("sc://h/;user_id=anna",)),
    ],
)
def test_what_of_a_connect_address_is_secret(remote, secrets):
    assert set(secrets) <= set(of_connect_address(remote))


@given(st.text(min_size=3, alphabet=st.characters(codec="ascii", exclude_characters="<>")))
def test_no_spelling_of_a_secret_is_left(secret):
    for spelt in every_spelling([secret]):
        assert without(every_spelling([secret]), f"<{spelt}>") == "<***>"


def test_longer_secrets_are_taken_out_before_their_parts():
    secrets = every_spelling(["abc", "abc/def"])

    assert without(secrets, "x abc/def abc%2Fdef abc y") == "x *** *** *** y"
