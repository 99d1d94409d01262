#!/usr/bin/env python3
"""Opens a report in a headless Chromium and compares it with result.json: what scripts/proof/report.sh says.

  report_browser.py REPORT.html RESULT.json FOLDER      screenshots and a PDF go to FOLDER
"""

import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile

WIDTHS = {"phone": 360, "desktop": 1280}
SMALLEST_TEXT, LEAST_CONTRAST = 9, 4.5  # pixels; WCAG 2.1, 1.4.3

# What the page looks like from inside: sizes, contrasts, text.
LOOK = """
(() => {
  const luminance = (text) => {
    const parts = text.match(/[\\d.]+/g).map(Number);
    const linear = parts.slice(0, 3).map((x) => x / 255).map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  const contrasts = {};
  for (const what of ["body", "td", "h2", "svg text", "summary", "polyline", "svg .fault text"]) {
    const found = document.querySelector(what);
    if (!found) continue;
    const style = getComputedStyle(found);
    const ink = what === "polyline" ? style.stroke : found.closest("svg") ? style.fill : style.color;
    contrasts[what] = contrast(luminance(ink), paper);
  }
  let smallest = 1e9;
  for (const text of document.querySelectorAll("svg text")) {
    const svg = text.ownerSVGElement;
    smallest = Math.min(smallest, parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);
  }
  const rows = [...document.querySelectorAll("tr")].map((tr) => [...tr.children].map((cell) => cell.textContent));
  return {
    wide: document.scrollingElement.scrollWidth, inner: innerWidth, high: document.scrollingElement.scrollHeight,
    smallest, contrasts, rows, plots: document.querySelectorAll("svg").length, faults: document.querySelectorAll("svg .fault").length,
    lines: [...document.querySelectorAll("polyline")].every((line) => line.points.numberOfItems > 1),
    text: document.body.textContent,
  };
})()
"""


class Browser:
    """Chromium's DevTools protocol over its pipe: JSON with a NUL behind each message."""

    def __init__(self, profile):
        (theirs_in, self.to), (self.come, theirs_out) = os.pipe(), os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                   "--no-first-run", "--disable-extensions", "--disable-background-networking", f"--user-data-dir={profile}"]

        def give_pipes():  # it expects them as 3 and 4
            ends = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(["chromium", *options, "about:blank"], preexec_fn=give_pipes, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.rest, self.number, self.session, self.told = b"", 0, None, []

    def message(self):
        while b"\0" not in self.rest:
            got = os.read(self.come, 1 << 20)
            if not got:
                raise SystemExit("chromium has ended")
            self.rest += got
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **words):
        self.number += 1
        call = {"id": self.number, "method": method, "params": words}
        if self.session:
            call["sessionId"] = self.session
        os.write(self.to, json.dumps(call).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.told.append(answer)

    def wait_for(self, method):
        while not any(message.get("method") == method for message in self.told):
            self.told.append(self.message())
        self.told = [message for message in self.told if message.get("method") != method]

    def open_page(self):
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(domain + ".enable")


def numbers_of(result):
    """What must stand in the page, as the page writes it."""
    wall = result["wall_s"]
    wanted = [result["status"], str(result["final_step"]), str(result["tokens"]), result["state_digest"], f"{result['final_loss']:.6f}",
              f"{wall:.2f} s", f"{100 * result['goodput']:.2f} %"]
    for use, seconds in result["time_s"].items():
        if seconds > 0:
            wanted += [use, f"{seconds:.2f}", f"{100 * seconds / wall:.2f} %"]
    for attempt in result["attempts"]:
        wanted += [attempt["cause"], *attempt["evidence"], *attempt["placement"]]
        if attempt["cause"] != "finished":
            wanted += [f"{attempt['detected_s']:.2f}", f"{attempt['recovered_s']:.2f}", str(attempt["lost_steps"])]
    return wanted


def main(page, result, folder):
    result, failed = json.loads(pathlib.Path(result).read_text()), []

    def expect(holds, *words):
        if not holds:
            failed.append(" ".join(map(str, words)))

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        browser.open_page()
        for scheme in ("light", "dark"):
            for name, width in WIDTHS.items():
                here = f"{name}, {scheme}:"
                browser.told.clear()
                browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=name == "phone")
                browser.ask("Emulation.setEmulatedMedia", media="screen", features=[{"name": "prefers-color-scheme", "value": scheme}])
                browser.ask("Page.navigate", url=pathlib.Path(page).resolve().as_uri())
                browser.wait_for("Page.loadEventFired")
                seen = browser.ask("Runtime.evaluate", expression=LOOK, returnByValue=True)["result"]["value"]
                expect(seen["wide"] <= seen["inner"] == width, here, seen["wide"], "pixels in a window of", seen["inner"])
                expect(seen["smallest"] >= SMALLEST_TEXT, here, "the smallest text of a plot has", seen["smallest"], "pixels")
                for what, contrast in seen["contrasts"].items():
                    expect(contrast >= LEAST_CONTRAST, here, what, "has a contrast of", round(contrast, 2))
                for text in numbers_of(result):
                    expect(text in seen["text"], here, "the page has not", repr(text))
                expect(seen["plots"] >= 3 and seen["lines"], here, seen["plots"], "plots")
                lost = sum(attempt["cause"] != "finished" for attempt in result["attempts"])
                expect(seen["faults"] >= lost * seen["plots"], here, seen["faults"], "marks of faults in", seen["plots"], "plots")
                for message in browser.told:
                    method, words = message.get("method", ""), message.get("params", {})
                    if method == "Network.requestWillBeSent":
                        expect(words["request"]["url"].startswith("file:"), here, "asks for", words["request"]["url"])
                    expect(method not in ("Runtime.exceptionThrown", "Log.entryAdded"), here, json.dumps(words)[:300])
                shot = browser.ask("Page.captureScreenshot", captureBeyondViewport=True,
                                   clip={"x": 0, "y": 0, "width": width, "height": min(seen["high"], 12000), "scale": 1})
                (pathlib.Path(folder) / f"report-{name}-{scheme}.png").write_bytes(base64.b64decode(shot["data"]))
        browser.ask("Emulation.setEmulatedMedia", media="print", features=[])
        pdf = base64.b64decode(browser.ask("Page.printToPDF", printBackground=True)["data"])
        (pathlib.Path(folder) / "report.pdf").write_bytes(pdf)
        expect(pdf.startswith(b"%PDF"), "no PDF")
        browser.session = None
        browser.ask("Browser.close")
        browser.process.wait(30)
    print("\n".join(failed) or f"{len(numbers_of(result))} texts of result.json, {len(WIDTHS)} widths, light and dark: all there")
    return bool(failed)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
