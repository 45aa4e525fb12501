"""A game of TextArena behind OpenEnv's own server; runs in their environment: openenv_game.py PORT."""

from __future__ import annotations

import random
import sys
from typing import Any

import textarena
import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    guess: str


class Board(Observation):
    text: str = ""


class Game(Environment[Guess, Board, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **given: Any) -> Board:
        random.seed(seed)
        self._game = textarena.make("GuessTheNumber-v0")
        self._game.reset(num_players=1, seed=seed)
        return Board(text=str(self._game.get_observation()[1]).rpartition("[GAME]")[2].strip())

    def step(self, action: Guess, timeout_s: float | None = None, **given: Any) -> Board:
        done, _ = self._game.step(action.guess)
        if done:
            rewards, _ = self._game.close()
            return Board(text="The game is over.", done=True, reward=float(rewards[0]))
        return Board(text=str(self._game.get_observation()[1]).rpartition("[GAME]")[2].strip())

    @property
    def state(self) -> State:
        return State()


app = create_fastapi_app(Game, Guess, Board, max_concurrent_envs=8)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
