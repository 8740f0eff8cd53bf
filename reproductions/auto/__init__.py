"""The study behind `auto`: every strategy at several lengths, on grounds fixed beforehand."""
