"""Telling: records, plans, progress and fields as text and pictures. Nothing here runs anything."""
