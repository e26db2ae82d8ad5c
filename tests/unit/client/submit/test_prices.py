import pytest

from securebench.client.tester_config import load_prices, parse_tester_config
from securebench.errors import ConfigErrors
from securebench.stats.cost import Price
from unit.client.submit.test_tester_config import good

TABLE = [{"model": "big", "input": 3, "output": 9}, {"model": "x", "input": 3, "output": 9}]


def test_a_table_in_the_tester_yaml():
    table = [{**TABLE[0], "cached_input": 1}, TABLE[1]]
    want = {"big": Price(3, 1, 9), "x": Price(3, 3, 9)}
    assert parse_tester_config(good(prices=table)).prices == want
    assert parse_tester_config(good()).prices == {}


def test_a_file(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text("prices:\n- {model: big, input: 3, output: 9}\n")
    assert load_prices(path) == {"big": Price(3, 3, 9)}


FILES = {
    "cost: 1": "1: price table has unknown field(s): cost",
    "prices:\n- {model: big, input: 3}": "1: price table.prices[0].output is required",
    "prices:\n- model: big\n  input: 1.25\n  output: 3": (
        "3: price table.prices[0].input must be a whole number of micro-dollars per million tokens"
    ),
    "prices:\n- {model: big, input: -3, output: 3}": (
        "2: price table.prices[0].input must be a whole number"
    ),
    "prices:\n- {model: big, inptu: 3, output: 3}": "did you mean",
    "prices: [": "1: invalid YAML",
    "prices:\n- {model: b, input: 1, output: 3}\n- {model: b, input: 2, output: 3}": "twice: b",
}


@pytest.mark.parametrize("text", FILES)
def test_what_is_wrong_is_said_with_its_line(text, tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(ConfigErrors) as caught:
        load_prices(path)
    said = str(caught.value)
    assert said.startswith(str(path))
    assert FILES[text] in said


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigErrors, match="cannot be read: No such file"):
        load_prices(tmp_path / "none.yaml")


def test_a_model_named_twice_in_the_tester_yaml():
    with pytest.raises(ConfigErrors, match="prices names models twice: big"):
        parse_tester_config(good(prices=[TABLE[0], TABLE[0]]))
