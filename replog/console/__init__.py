"""The console: a page that shows a cluster to people, and changes a little of it where that is allowed (docs/CONSOLE.md).

It is a client like any other, over Kafka's protocol, in a process of its own: nothing on the page can hold up a broker.
It stands above the command line, whose words, places and record lines it shows.
"""
