"""Compiled modules of these tests are cached beside their temporary folders, not in the user's cache."""

from __future__ import annotations
