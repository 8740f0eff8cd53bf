"""The parts of the adapter for Lightning; importing any of them checks Lightning's version."""

from selective_backprop.integrations._lightning._version import check_version, installed_version

check_version(installed_version())
