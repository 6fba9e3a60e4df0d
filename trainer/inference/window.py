"""Drawn pictures -> a window on the desktop, by Python's tkinter, because our OpenCV is the headless one."""

from typing import Any, Final

import cv2

from shared.errors import PipelineError
from trainer.pixels import Picture

# The largest share of the screen's sides that a picture may take.
_LARGEST: Final = 0.9

_INSTEAD: Final = "--out FOLDER writes what would be shown"


class Window:
    """A window that shows one picture after another: a key or a click goes on, `q` or closing it ends."""

    def __init__(self, title: str) -> None:
        """Open the window.

        Raises:
            PipelineError: There is no desktop to open it on, or Python was built without tkinter.
        """
        try:
            import tkinter
        except ImportError as error:
            found = f"this Python has no tkinter ({error})"
            raise PipelineError(f"--show: {found}: install it (apt install python3-tk), or use {_INSTEAD}") from error
        try:
            self._root: Any = tkinter.Tk()
        except tkinter.TclError as error:
            raise PipelineError(f"--show: no desktop to open a window on ({error}); {_INSTEAD}") from error
        self._make_photo, self._gone = tkinter.PhotoImage, tkinter.TclError
        self._root.title(title)
        self._label: Any = tkinter.Label(self._root)
        self._label.pack()
        self._goes_on = tkinter.BooleanVar(self._root)
        self._is_open = True
        self._root.protocol("WM_DELETE_WINDOW", self._close)
        for event in ("<Key>", "<Button>"):
            self._root.bind(event, self._go_on)
        for event in ("q", "<Escape>"):
            self._root.bind(event, self._close)

    def show(self, picture: Picture, name: str, *, wait: bool) -> bool:
        """Show a picture, uint8 [H, W, 3], BGR; with `wait`, return only after a key or a click.

        Returns:
            Whether the window is still open.
        """
        if not self._is_open:
            return False
        try:
            self._photo = self._make_photo(master=self._root, data=self._fitted(picture), format="ppm")
            self._label.configure(image=self._photo)
            self._root.title(name)
            self._root.update()
            if wait and self._is_open:
                self._root.wait_variable(self._goes_on)
        except self._gone:  # the desktop ended
            self._is_open = False
        return self._is_open

    def close(self) -> None:
        """Close the window if a person has not."""
        if self._is_open:
            self._close()

    def _fitted(self, picture: Picture) -> bytes:
        """The picture as PPM, no larger than the screen."""
        height, width = picture.shape[:2]
        screen = self._root.winfo_screenwidth(), self._root.winfo_screenheight()
        scale = min(1.0, _LARGEST * screen[0] / width, _LARGEST * screen[1] / height)
        if scale < 1:
            size = max(1, round(scale * width)), max(1, round(scale * height))
            picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA).astype("uint8", copy=False)
        return cv2.imencode(".ppm", picture)[1].tobytes()

    def _go_on(self, _event: object = None) -> None:
        self._goes_on.set(True)

    def _close(self, _event: object = None) -> None:
        self._is_open = False
        self._goes_on.set(True)
        self._root.destroy()
