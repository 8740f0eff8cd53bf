"""The processes (ranks) that train together, and the messages that they exchange."""
