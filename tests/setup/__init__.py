"""Brings what the test tiers need into the cache: `python -m tests.setup --help`.

Every step can be repeated: what is there already costs no time.
"""
