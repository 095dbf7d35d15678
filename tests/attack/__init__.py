"""Attacks on everything that is written and read: kills, damaged files, concurrent writers, full disks.

``python -m tests.attack`` runs all of them; ``--quick`` a sample that fits into the test suite.
"""
