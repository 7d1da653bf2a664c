"""The brokers that the tests start themselves: they take a message, come back on the same port, and leave nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.servers import ServerMissing
from tests.servers.processes import descendants
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

amqp = pytest.importorskip("amqp")
redis = pytest.importorskip("redis")


def test_redis_stores_a_message(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.lpush("brokers-test", "hint")
        assert client.llen("brokers-test") == 1


def test_redis_of_its_own_is_killed_comes_back_and_ends(redis_server: RedisServer) -> None:
    own = RedisServer(kept=True)
    try:
        with redis.Redis.from_url(own.url) as client:
            client.lpush("q", "hint")
            client.config_set("appendfsync", "always")
            client.lpush("q", "hint")
            own.restart()
            assert client.llen("q") == 2
            own.disconnect()
            own.flush()
            assert client.llen("q") == 0
    finally:
        pid = own.pid
        own.end()
    assert not Path(f"/proc/{pid}").exists()
    assert not own.folder.exists()


def test_rabbit_stores_a_message(rabbit: RabbitServer) -> None:
    with amqp.Connection(f"127.0.0.1:{rabbit.port}") as connection:
        channel = connection.channel()
        name = channel.queue_declare(exclusive=True).queue
        channel.confirm_select()
        channel.basic_publish_confirm(amqp.Message("hint"), routing_key=name)
        assert channel.queue_declare(name, passive=True).message_count == 1
    # The tests have started its port mapper, so that it ends with them.
    assert any("epmd" in Path(f"/proc/{pid}/cmdline").read_text() for pid in descendants(os.getpid()))


def test_a_missing_server_is_reported_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("BIDE_RABBITMQ_BIN", "/nowhere")
    with pytest.raises(ServerMissing, match="apt-get install redis-server"):
        RedisServer()
    with pytest.raises(ServerMissing, match="apt-get install rabbitmq-server"):
        RabbitServer()
