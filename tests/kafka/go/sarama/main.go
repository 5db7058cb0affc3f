// Command sarama is sarama behind standard input; its argument is host:port of brokers, separated by commas.
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

	"github.com/IBM/sarama"

	"replog.test/clients/driver"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var acks = map[string]sarama.RequiredAcks{"all": sarama.WaitForAll, "1": sarama.WaitForLocal, "0": sarama.NoResponse}

type client struct {
	seeds  []string
	shared sarama.Client
	admin  sarama.ClusterAdmin
}

func main() {
	seeds := strings.Split(os.Args[1], ",")
	shared, err := sarama.NewClient(seeds, settings())
	if err != nil {
		log.Fatal(err)
	}
	admin, err := sarama.NewClusterAdminFromClient(shared)
	if err != nil {
		log.Fatal(err)
	}
	defer admin.Close()
	driver.Run(&client{seeds, shared, admin})
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Consumer.Return.Errors = true
	return config
}

func (c *client) Produce(topic string, partition int32, records []driver.Record, asked map[string]string) ([]int64, error) {
	bytesMax, err := strconv.Atoi(asked["max.request.size"])
	if err != nil {
		return nil, err
	}
	config := settings()
	config.Producer.RequiredAcks = acks[asked["acks"]]
	config.Producer.Compression = codecs[asked["compression.type"]]
	config.Producer.Idempotent = asked["enable.idempotence"] == "true"
	config.Producer.MaxMessageBytes = bytesMax
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	config.Net.MaxOpenRequests = 1 // it keeps the order with no more than one
	producer, err := sarama.NewSyncProducer(c.seeds, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	sent := make([]*sarama.ProducerMessage, len(records))
	for i, each := range records {
		message := &sarama.ProducerMessage{Topic: topic, Partition: partition, Timestamp: time.UnixMilli(each.TimestampMs)}
		if each.Key != nil {
			message.Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			message.Value = sarama.ByteEncoder(each.Value)
		}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		sent[i] = message
	}
	if err := producer.SendMessages(sent); err != nil {
		var failed sarama.ProducerErrors
		if errors.As(err, &failed) {
			return nil, failed[0].Err
		}
		return nil, err
	}
	offsets := make([]int64, len(sent))
	for i, message := range sent {
		offsets[i] = message.Offset
		if asked["acks"] == "0" {
			offsets[i] = -1
		}
	}
	return offsets, nil
}

func (c *client) BeginTransaction(id string) error {
	config := settings()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = id
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(c.seeds, config)
	if err != nil {
		return withCode(err)
	}
	defer producer.Close()
	return withCode(producer.BeginTxn())
}

func (c *client) Read(topic string, partition int32, start int64, count int) ([]driver.Record, error) {
	consumer, err := sarama.NewConsumer(c.seeds, settings())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	reading, err := consumer.ConsumePartition(topic, partition, start)
	if err != nil {
		return nil, err
	}
	defer reading.Close()
	deadline := time.After(driver.Timeout)
	var found []driver.Record
	for len(found) < count {
		select {
		case message := <-reading.Messages():
			got := driver.Record{Offset: message.Offset, TimestampMs: message.Timestamp.UnixMilli(), Key: message.Key, Value: message.Value}
			for _, header := range message.Headers {
				got.Headers = append(got.Headers, driver.Header{Name: string(header.Key), Value: header.Value})
			}
			found = append(found, got)
		case failed := <-reading.Errors():
			return nil, failed
		case <-deadline:
			return nil, fmt.Errorf("%d of %d records came", len(found), count)
		}
	}
	return found, nil
}

// member of a group: it hands on what its session reads, and commits what is taken.
type member struct {
	messages chan *sarama.ConsumerMessage
}

func (m *member) Setup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case m.messages <- message:
			session.MarkMessage(message, "")
			session.Commit()
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func (c *client) ReadAsMember(group, protocol, topic string, count int) ([][]byte, error) {
	if protocol != "classic" {
		return nil, fmt.Errorf("sarama has no protocol %q of groups", protocol)
	}
	config := settings()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	consumer, err := sarama.NewConsumerGroup(c.seeds, group, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), driver.Timeout)
	defer cancel()
	reading := &member{make(chan *sarama.ConsumerMessage)}
	ended := make(chan error, 1)
	go func() { ended <- consumer.Consume(ctx, []string{topic}, reading) }()
	var values [][]byte
	for len(values) < count {
		select {
		case message := <-reading.messages:
			values = append(values, message.Value)
		case failed := <-consumer.Errors():
			return nil, failed
		case err := <-ended:
			return nil, errors.Join(fmt.Errorf("%d of %d records came", len(values), count), err)
		}
	}
	cancel()
	return values, <-ended
}

func (c *client) Ends(topic string, partition int32) (first, end int64, err error) {
	first, err = c.shared.GetOffset(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return 0, 0, err
	}
	end, err = c.shared.GetOffset(topic, partition, sarama.OffsetNewest)
	return first, end, err
}

func (c *client) OffsetForTime(topic string, partition int32, timestampMs int64) (int64, error) {
	return c.shared.GetOffset(topic, partition, timestampMs)
}

func (c *client) Create(topic string, partitions int32, configs map[string]*string) error {
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: configs}
	return withCode(c.admin.CreateTopic(topic, detail, false))
}

func (c *client) Partitions(topic string) (int, error) {
	topics, err := c.admin.DescribeTopics([]string{topic})
	if err != nil {
		return 0, err
	}
	if errors.Is(topics[0].Err, sarama.ErrUnknownTopicOrPartition) {
		return 0, nil
	}
	if !errors.Is(topics[0].Err, sarama.ErrNoError) {
		return 0, topics[0].Err
	}
	return len(topics[0].Partitions), nil
}

func (c *client) Delete(topic string) error {
	return withCode(c.admin.DeleteTopic(topic))
}

// withCode adds the number of Kafka's error, which the text may lack.
func withCode(err error) error {
	var code sarama.KError
	if errors.As(err, &code) {
		return fmt.Errorf("%w [%d]", err, int16(code))
	}
	return err
}
