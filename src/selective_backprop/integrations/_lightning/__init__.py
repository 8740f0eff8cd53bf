"""The parts of the adapter for Lightning; whichever is imported, Lightning's version is checked."""

from selective_backprop.integrations._lightning._version import check_version, installed_version

check_version(installed_version())
