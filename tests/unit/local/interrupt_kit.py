"""The start of programs into which signals rain: a thread sends SIGINT as fast as it can, and interrupts count where `armed`."""

from __future__ import annotations

RAIN_OF_SIGNALS = """
import os, signal, sys, threading
import replog

class Interrupted(KeyboardInterrupt):
    pass

armed = False

def interrupt(number, frame):
    if armed:
        raise Interrupted

def send():
    while not over.is_set():
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, interrupt)
over, failures, caught = threading.Event(), [], 0

def start(*targets):
    threads = [threading.Thread(target=target, daemon=True) for target in (send, *targets)]
    for thread in threads:
        thread.start()
    return threads

def end(threads):
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
"""
