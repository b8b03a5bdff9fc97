"""Stands for webdataset where shardwise.webdataset.install() was called: see there."""

from shardwise.webdataset import install

__shardwise__ = True

install()
