"""The controller of the cluster: brokers, topics, leaders, configurations, as one pure core over the metadata log.

Start with `replog.controller.controller.Controller`; `messages` lists what goes in and comes out.  Nothing is imported
here, because clients need the messages alone.
"""
