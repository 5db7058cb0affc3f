"""What a client needs to be believed by a broker, and to believe it: TLS and SASL.

`security` says what was set, `kafka_names` reads it from the settings of Kafka's clients, `tls` and `sasl` carry it out.  Nothing of
this is loaded by clients that speak plain text.
"""
