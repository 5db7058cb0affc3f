// Command franz is franz-go behind standard input; its argument is host:port of brokers, separated by commas.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"replog.test/clients/driver"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}

type client struct {
	seeds []string
	admin *kadm.Client
}

func main() {
	seeds := strings.Split(os.Args[1], ",")
	shared, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer shared.Close()
	driver.Run(&client{seeds, kadm.NewClient(shared)})
}

func (c *client) Produce(topic string, partition int32, records []driver.Record, settings map[string]string) ([]int64, error) {
	bytesMax, err := strconv.Atoi(settings["batch.size"])
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(c.seeds...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(acks[settings["acks"]]),
		kgo.ProducerBatchCompression(codecs[settings["compression.type"]]),
		kgo.ProducerBatchMaxBytes(int32(bytesMax)),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if settings["enable.idempotence"] != "true" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	// not RecordDeliveryTimeout, which counts from the record's own timestamp
	ctx, cancel := context.WithTimeout(context.Background(), driver.Timeout)
	defer cancel()
	var sent []*kgo.Record
	for _, each := range records {
		record := &kgo.Record{Topic: topic, Partition: partition, Key: each.Key, Value: each.Value}
		record.Timestamp = time.UnixMilli(each.TimestampMs)
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		sent = append(sent, record)
	}
	if err := producer.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(sent))
	for i, record := range sent {
		offsets[i] = record.Offset
		if settings["acks"] == "0" {
			offsets[i] = -1
		}
	}
	return offsets, nil
}

func (c *client) BeginTransaction(id string) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(c.seeds...), kgo.TransactionalID(id))
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), driver.Timeout)
	defer cancel()
	_, _, err = producer.ProducerID(ctx)
	return err
}

func (c *client) Read(topic string, partition int32, start int64, count int) ([]driver.Record, error) {
	from := map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(start)}}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(c.seeds...), kgo.ConsumePartitions(from))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), driver.Timeout)
	defer cancel()
	var found []driver.Record
	for len(found) < count {
		fetches := consumer.PollRecords(ctx, count-len(found))
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records came: %w", len(found), count, err)
		}
		for _, record := range fetches.Records() {
			got := driver.Record{Offset: record.Offset, TimestampMs: record.Timestamp.UnixMilli(), Key: record.Key, Value: record.Value}
			for _, header := range record.Headers {
				got.Headers = append(got.Headers, driver.Header{Name: header.Key, Value: header.Value})
			}
			found = append(found, got)
		}
	}
	return found, nil
}

func (c *client) ReadAsMember(group, protocol, topic string, count int) ([][]byte, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.seeds...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	}
	consumer, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), driver.Timeout)
	defer cancel()
	var values [][]byte
	for len(values) < count {
		fetches := consumer.PollRecords(ctx, count-len(values))
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records came: %w", len(values), count, err)
		}
		for _, record := range fetches.Records() {
			values = append(values, record.Value)
		}
	}
	return values, consumer.CommitUncommittedOffsets(ctx)
}

func (c *client) Ends(topic string, partition int32) (first, end int64, err error) {
	starts, err := c.admin.ListStartOffsets(context.Background(), topic)
	if err != nil {
		return 0, 0, err
	}
	ends, err := c.admin.ListEndOffsets(context.Background(), topic)
	if err != nil {
		return 0, 0, err
	}
	begin, _ := starts.Lookup(topic, partition)
	last, _ := ends.Lookup(topic, partition)
	return begin.Offset, last.Offset, errors.Join(begin.Err, last.Err)
}

func (c *client) OffsetForTime(topic string, partition int32, timestampMs int64) (int64, error) {
	listed, err := c.admin.ListOffsetsAfterMilli(context.Background(), timestampMs, topic)
	if err != nil {
		return -1, err
	}
	found, _ := listed.Lookup(topic, partition)
	if found.Timestamp < 0 {
		return -1, found.Err // the offset is the end then
	}
	return found.Offset, found.Err
}

func (c *client) Create(topic string, partitions int32, configs map[string]*string) error {
	_, err := c.admin.CreateTopic(context.Background(), partitions, 1, configs, topic)
	return err
}

func (c *client) Partitions(topic string) (int, error) {
	topics, err := c.admin.ListTopics(context.Background(), topic)
	if err != nil {
		return 0, err
	}
	if errors.Is(topics[topic].Err, kerr.UnknownTopicOrPartition) {
		return 0, nil
	}
	return len(topics[topic].Partitions), topics[topic].Err
}

func (c *client) Delete(topic string) error {
	_, err := c.admin.DeleteTopic(context.Background(), topic)
	return err
}
