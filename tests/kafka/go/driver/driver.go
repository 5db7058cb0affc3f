// Package driver puts a Kafka client behind standard input, as java/KafkaDriver.java does (../../line_driver.py has the protocol).
//
// A command is one line of words between tabs; the answer is any number of lines and then one that is "." (done) or begins with "!"
// (failed). Bytes are in hex, "-" is null. End of input ends the program.
package driver

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Timeout is how long one command may wait for brokers.
const Timeout = 30 * time.Second

// Header of a record.
type Header struct {
	Name  string
	Value []byte
}

// Record that is written or was read; a nil Key or Value is null.
type Record struct {
	Offset      int64
	TimestampMs int64
	Key, Value  []byte
	Headers     []Header
}

// Client is what a library must do; every call is about one partition or one topic.
type Client interface {
	// Produce returns the offsets of the records; -1 where the broker tells none.
	Produce(topic string, partition int32, records []Record, settings map[string]string) ([]int64, error)
	Read(topic string, partition int32, start int64, count int) ([]Record, error)
	// ReadAsMember subscribes for a group of a protocol ("classic" or "consumer"), and commits behind what it returns.
	ReadAsMember(group, protocol, topic string, count int) ([][]byte, error)
	Ends(topic string, partition int32) (first, end int64, err error)
	// OffsetForTime returns -1 where no record is as young.
	OffsetForTime(topic string, partition int32, timestampMs int64) (int64, error)
	Create(topic string, partitions int32, configs map[string]*string) error
	// Partitions returns 0 where there is no such topic.
	Partitions(topic string) (int, error)
	Delete(topic string) error
	// BeginTransaction makes a transactional producer ready, as far as brokers have to do with it.
	BeginTransaction(id string) error
}

// Run serves commands until the input ends.
func Run(client Client) {
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	for in.Scan() {
		lines, err := answer(client, strings.Split(in.Text(), "\t"))
		for _, line := range lines {
			fmt.Fprintln(out, line)
		}
		if err != nil {
			fmt.Fprintln(out, "!", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Fprintln(out, ".")
		}
		out.Flush()
	}
}

func answer(client Client, words []string) ([]string, error) {
	switch words[0] {
	case "produce":
		records, err := recordsOf(words[3])
		if err != nil {
			return nil, err
		}
		settings := make(map[string]string)
		for _, pair := range words[4:] {
			name, value, _ := strings.Cut(pair, "=")
			settings[name] = value
		}
		offsets, err := client.Produce(words[1], int32(number(words[2])), records, settings)
		lines := make([]string, len(offsets))
		for i, offset := range offsets {
			lines[i] = strconv.FormatInt(offset, 10)
		}
		return lines, err
	case "read":
		records, err := client.Read(words[1], int32(number(words[2])), number(words[3]), int(number(words[4])))
		lines := make([]string, len(records))
		for i, record := range records {
			lines[i] = shown(record)
		}
		return lines, err
	case "read-as-member":
		values, err := client.ReadAsMember(words[1], words[2], words[3], int(number(words[4])))
		lines := make([]string, len(values))
		for i, value := range values {
			lines[i] = text(value)
		}
		return lines, err
	case "ends":
		first, end, err := client.Ends(words[1], int32(number(words[2])))
		return []string{fmt.Sprintf("%d\t%d", first, end)}, err
	case "offsets-for-times":
		offset, err := client.OffsetForTime(words[1], int32(number(words[2])), number(words[3]))
		if offset < 0 {
			return []string{"-"}, err
		}
		return []string{strconv.FormatInt(offset, 10)}, err
	case "create":
		configs := make(map[string]*string)
		for _, pair := range words[3:] {
			name, value, _ := strings.Cut(pair, "=")
			configs[name] = &value
		}
		return nil, client.Create(words[1], int32(number(words[2])), configs)
	case "partitions":
		count, err := client.Partitions(words[1])
		return []string{strconv.Itoa(count)}, err
	case "begin":
		return nil, client.BeginTransaction(words[1])
	case "delete":
		return nil, client.Delete(words[1])
	}
	return nil, fmt.Errorf("no such command: %q", words)
}

func number(word string) int64 {
	value, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func recordsOf(path string) ([]Record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var records []Record
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		words := strings.Split(line, "\t")
		record := Record{TimestampMs: number(words[0]), Key: bytes(words[1]), Value: bytes(words[2])}
		for _, pair := range words[3:] {
			name, value, _ := strings.Cut(pair, "=")
			record.Headers = append(record.Headers, Header{string(bytes(name)), bytes(value)})
		}
		records = append(records, record)
	}
	return records, nil
}

// shown has the columns of java/KafkaDriver.java; these clients say nothing of timestamp types and epochs that all share.
func shown(record Record) string {
	words := []string{
		strconv.FormatInt(record.Offset, 10), "CreateTime", strconv.FormatInt(record.TimestampMs, 10),
		text(record.Key), text(record.Value), "-1",
	}
	for _, header := range record.Headers {
		words = append(words, text([]byte(header.Name))+"="+text(header.Value))
	}
	return strings.Join(words, "\t")
}

func bytes(word string) []byte {
	if word == "-" {
		return nil
	}
	data, err := hex.DecodeString(word)
	if err != nil {
		panic(err)
	}
	return data
}

func text(data []byte) string {
	if data == nil {
		return "-"
	}
	return hex.EncodeToString(data)
}
