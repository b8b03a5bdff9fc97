"""Replaces wids in processes where shardwise.wids.install() was called; see there."""

from shardwise.wids import install

__shardwise__ = True

install()
