"""Found by ``import webdataset`` after shardwise.webdataset.install(), e.g. in spawned workers."""

from shardwise.webdataset import install

__shardwise__ = True

install()
