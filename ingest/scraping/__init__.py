"""Scraping: the Prometheus pages of engines and exporters, read on an interval into the metric tables."""

from tailtrace.ingest.scraping.exposition import read_exposition
from tailtrace.ingest.scraping.scraper import Scraper
from tailtrace.ingest.scraping.target import Target, parse_targets

__all__ = ["Scraper", "Target", "parse_targets", "read_exposition"]
