"""The command that makes a page to look at credit with."""

import webbrowser
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from secret_rl.cli.output import Output, Terminated, UsageError


@dataclass(frozen=True)
class Explore(Output):
    """Make a page to look at credit with: trajectories, their rewards, and the steps that earned them.

    The page is one HTML file that needs no network; open it in a browser.
    """

    model: Positional[Path]
    """File written by fit."""
    data: Positional[Path]
    """Folder that trajectories were saved to."""
    out: Path = Path("explorer.html")
    """File to write."""
    trajectories: int = 50
    """How many to show: successful, mispredicted and long ones are among them."""
    episodes: tuple[int, ...] = ()
    """Show these instead, by number."""
    potential: Path | None = None
    """Show the values and the shaped reward of this potential, a file; by default of the model's own credit."""
    discount: float = 0.99
    """Of the shaped reward."""
    env: str | None = None
    """Gymnasium id to play episodes again in, for example minigrid:MiniGrid-Unlock-v0; by default the one of the data.
    """
    replay: bool = True
    """Play episodes again to see them; without, only what is stored is shown."""
    title: str | None = None
    """Heading of the page."""
    serve: bool = False
    """Serve the page on this machine, 127.0.0.1, until interrupted."""
    port: int = 0
    """Port to serve at; 0: a free one."""
    open: bool = False
    """Open the page in a browser."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""

    def run(self) -> None:
        """Make the page, and serve it if asked to."""
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port must be from 0 to 65535, got {self.port}")
        from secret_rl.credit import Secret
        from secret_rl.report.explorer import explore

        self.doubt(Secret.load(self.model, device="cpu").report)
        made = explore(
            self.model,
            self.data,
            self.out,
            trajectories=self.trajectories,
            episodes=self.episodes or None,
            potential=self.potential,
            discount=self.discount,
            env=self.env,
            replay=self.replay,
            title=self.title,
            device=self.device,
        )
        words = [f"saved       {made.path} ({made.bytes / 1e6:.2f} MB, {len(made.episodes)} trajectories)"]
        words += [f"note        {note}" for note in made.notes]
        content = {"page": str(made.path), "bytes": made.bytes, "episodes": list(made.episodes), "notes": made.notes}
        self.saved("\n".join(words), content)
        if self.serve:
            self._serve(made.path)
        elif self.open:
            webbrowser.open(made.path.resolve().as_uri())

    def _serve(self, path: Path) -> None:
        from secret_rl.report.explorer.serve import server

        with server(path, self.port) as serving:
            address = f"http://127.0.0.1:{serving.server_address[1]}/"
            self.note(f"serving     {address} until interrupted (Ctrl-C)")
            if self.open:
                webbrowser.open(address)
            try:
                serving.serve_forever()
            except Terminated:
                raise
            except KeyboardInterrupt:
                self.note("stopped")
