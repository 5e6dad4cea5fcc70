"""When the jobs are enqueued: often while there is news, rarely else, never twice at once."""

from __future__ import annotations

from tailtrace.cli.processes.ticker import Ticker


class Bench:
    """A ticker on a clock that is set by hand. Each round ends at once unless `slow`."""

    def __init__(self, *, slow: bool = False) -> None:
        self.now = 1000.0
        self.progress = 0
        self.rounds = 0
        self._slow = slow
        self.ticker = Ticker(
            self._enqueue, lambda: self.progress, busy_s=1, idle_s=15, settle_s=20, clock=lambda: self.now
        )

    def _enqueue(self) -> None:
        self.rounds += 1
        if not self._slow:
            self.ticker.finished()

    def run(self, seconds: float, *, news: bool = False) -> int:
        """Rounds enqueued while the clock goes on, ticked twice a second."""
        before = self.rounds
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.progress += news
            self.ticker.tick()
        return self.rounds - before


def test_each_second_while_data_comes_in() -> None:
    assert Bench().run(30, news=True) == 30


def test_rarely_once_everything_has_settled() -> None:
    bench = Bench()
    bench.run(60)
    assert bench.run(150) == 10


def test_goes_on_until_late_spans_have_settled() -> None:
    bench = Bench()
    bench.run(100)
    bench.run(0.5, news=True)
    assert bench.run(19) == 19


def test_news_end_the_pause() -> None:
    bench = Bench()
    bench.run(100)
    assert bench.run(1, news=True) == 1


def test_never_two_rounds_at_once() -> None:
    bench = Bench(slow=True)
    assert bench.run(30, news=True) == 1
    bench.ticker.finished()
    assert bench.run(30, news=True) == 1


def test_a_round_lost_with_its_worker_does_not_stop_the_jobs_for_ever() -> None:
    bench = Bench(slow=True)
    assert bench.run(1300, news=True) == 3
