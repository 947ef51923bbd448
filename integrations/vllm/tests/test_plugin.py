"""The plugin against a vLLM in miniature: what is written, and that nothing reaches the server."""

import dataclasses
import gzip
import importlib
import json
import logging
import os
import tempfile
import unittest
from fractions import Fraction
from types import SimpleNamespace

import k3plan_vllm
from k3plan_vllm.draft import draft_from
from k3plan_vllm.recording import case_name
from k3plan_vllm.settings import memory, settings
from k3plan_vllm.specs import describe
from k3plan_vllm.write import append, unused

from . import fake_vllm as fake


class Hooked(unittest.TestCase):
    """A process in which vLLM calls the plugin and plans."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "new", "dump.jsonl")
        os.environ["K3PLAN_DUMP"] = self.path
        logging.getLogger("vllm").setLevel(logging.CRITICAL)

    def tearDown(self):
        os.environ.pop("K3PLAN_DUMP", None)
        os.environ.pop("K3PLAN_DUMP_ID", None)
        fake.remove()
        self.folder.cleanup()

    def lines(self):
        with open(self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def plan(self, core, config=None, workers=None, memory=(1 << 20,)):
        config = config or fake.vllm_config()
        workers = workers or [{f"model.layers.{i}.attn": full() for i in range(4)}]
        groups = getattr(core, "get_global_kv_cache_groups", None)
        return core.get_kv_cache_configs(
            config, workers, list(memory), *([groups(config, workers)] if groups else [])
        )

    def test_a_plan_is_one_line(self):
        for newest, version in [(False, "0.32.0"), (True, "0.33.0")]:
            with self.subTest(version=version):
                core, _ = fake.install(newest)
                k3plan_vllm.register()
                k3plan_vllm.register()
                made = self.plan(core)
                self.assertEqual(made[0].num_blocks, 7)
                line = self.lines()[-1]
                self.assertEqual(line["specs"], [full_record()])
                self.assertEqual(line["layers"], [0, 0, 0, 0])
                self.assertEqual(line["names"][3], "model.layers.3.attn")
                self.assertEqual(line["engine"]["available_memory"], 1 << 20)
                self.assertEqual(line["engine"]["max_concurrent_batches"], 2)
                answer = line["expect"][version]
                self.assertEqual(answer["groups"], [[0, 1, 2, 3]])
                self.assertEqual(answer["block_sizes"], [32])
                self.assertEqual(answer["num_blocks"], 7)
                self.assertEqual(answer["max_concurrency"], 3.5)
                self.assertEqual(answer["bytes_per_block"], 4096)
                self.assertEqual(answer["blocks_per_max_len_request"], 128)
                self.assertEqual(answer["padding_layers"], 0)
        self.assertEqual([line["id"] for line in self.lines()], ["tiny", "tiny-2"])

    def test_a_fitted_length_is_told_from_the_asked_one(self):
        core, _ = fake.install(False)
        k3plan_vllm.register()
        self.plan(core, fake.vllm_config(model_config__original_max_model_len=-1))
        (line,) = self.lines()
        self.assertEqual(line["engine"]["max_model_len"], -1)
        self.assertEqual(line["engine"]["derived_max_model_len"], 4096)
        self.assertEqual(line["expect"]["0.32.0"]["max_model_len"], 1000)

    def test_stages_count_one_worker_each_and_the_poorest(self):
        core, _ = fake.install(False)
        k3plan_vllm.register()
        first = {"model.layers.0.attn": full(), "model.layers.1.attn": full(), "model.layers.2.attn": full()}
        second = {"model.layers.3.attn": full()}
        config = fake.vllm_config(parallel_config__pipeline_parallel_size=2, parallel_config__tensor_parallel_size=2)
        self.plan(core, config, [first, first, second, second], [9, 8, 7, 6])
        (line,) = self.lines()
        self.assertEqual(line["engine"]["pp_layers"], [3, 1])
        self.assertEqual(line["engine"]["available_memory_per_worker"], [8, 6])
        self.assertEqual(line["expect"]["0.32.0"]["worker_group_sizes"], [[3], [1]])
        self.assertEqual(line["expect"]["0.32.0"]["groups"], [[0, 1, 2, 3]])
        self.assertNotIn("max_concurrency", line["expect"]["0.32.0"])
        self.assertEqual(line["id"], "tiny-tp2-pp2")

    def test_a_refusal_is_recorded_and_raised(self):
        for newest in (False, True):
            core, planning = fake.install(newest)
            k3plan_vllm.register()
            planning.refuses = "capacity"
            with self.assertRaisesRegex(ValueError, "not enough"):
                self.plan(core)
            answer = next(iter(self.lines()[-1]["expect"].values()))
            self.assertEqual(answer["capacity_error"], {"error": "ValueError", "detail": "not enough"})
            self.assertEqual(answer["groups"], [[0, 1, 2, 3]])
            planning.refuses = "grouping"
            with self.assertRaises(NotImplementedError):
                self.plan(core)
            answer = next(iter(self.lines()[-1]["expect"].values()))
            self.assertEqual((answer["error"], answer["stage"]), ("NotImplementedError", "grouping"))

    def test_no_failure_of_ours_reaches_the_server(self):
        blocked, pipe = os.path.join(self.folder.name, "file"), os.path.join(self.folder.name, "pipe")
        open(blocked, "w").close()
        os.mkfifo(pipe)

        class NoDataclass:
            block_size = page_size_bytes = 16

        for path, spec in [
            (os.path.join(blocked, "below-a-file.jsonl"), full()),
            ("/dev/full", full()),
            (pipe, full()),
            (self.path, NoDataclass()),
        ]:
            for newest in (False, True):
                with self.subTest(path=path, newest=newest):
                    core, _ = fake.install(newest)
                    os.environ["K3PLAN_DUMP"] = path
                    k3plan_vllm.register()
                    with self.assertLogs("vllm.plugins.k3plan", "WARNING") as logs:
                        self.assertEqual(self.plan(core, workers=[{"a": spec}])[0].num_blocks, 7)
                    self.assertIn("failed to record the plan", logs.output[0])

    def test_an_unknown_vllm_is_left_alone(self):
        _, planning = fake.install(False)
        del planning.get_kv_cache_configs
        with self.assertLogs("vllm.plugins.k3plan", "WARNING") as logs:
            k3plan_vllm.register()
        self.assertIn("nothing will be recorded", logs.output[0])

    def test_without_the_variable_nothing_is_hooked(self):
        del os.environ["K3PLAN_DUMP"]
        core, planning = fake.install(False)
        before = planning.get_kv_cache_configs
        k3plan_vllm.register()
        self.assertIs(planning.get_kv_cache_configs, before)
        self.assertIs(core.get_kv_cache_configs, before)

    def test_a_model_without_a_cache_writes_nothing(self):
        core, _ = fake.install(False)
        k3plan_vllm.register()
        with self.assertRaises(StopIteration):  # the miniature groups no empty model
            self.plan(core, workers=[{}], memory=[0])
        self.assertFalse(os.path.exists(self.path))


class Specs(unittest.TestCase):
    def test_only_what_differs_from_the_default_is_declared(self):
        self.assertEqual(describe(full()), full_record())
        spec = fake.FullAttentionSpec(
            dtype=fake.dtype("float8_e4m3fn"),
            head_size_v=16,
            kv_quant_mode=fake.KVQuantMode.FP8_PER_TENSOR,
            tokens_per_state=Fraction(1, 2),
            block_stride_alignment=fake.MultipleOf(64),
            non_causal=True,
            is_draft=True,
        )
        self.assertEqual(
            describe(dataclasses.replace(spec, block_size=32)),
            {
                "kind": "full",
                "block_size": 32,
                "head_size_v": 16,
                "dtype": "float8_e4m3fn",
                "kv_quant_mode": "FP8_PER_TENSOR",
                "tokens_per_state": [1, 2],
                "block_stride_alignment": {"multiple_of": 64},
                "non_causal": True,
            },
        )

    def test_a_latent_has_no_value_head_by_default(self):
        self.assertNotIn("head_size_v", describe(fake.MLAAttentionSpec()))
        self.assertEqual(describe(fake.MLAAttentionSpec(head_size_v=32))["head_size_v"], 32)

    def test_states(self):
        spec = fake.MambaSpec(
            shapes=((3, 4), (2,)), dtypes=(fake.dtype("float32"),) * 2, mamba_type=fake.Backend.GDN_ATTN
        )
        self.assertEqual(
            describe(spec),
            {
                "kind": "mamba",
                "shapes": [[3, 4], [2]],
                "dtypes": ["float32", "float32"],
                "mamba_type": "GDN_ATTN",
            },
        )

    def test_a_class_of_a_vendor_keeps_its_name(self):
        self.assertEqual(describe(fake.VendorSpec(secret=8)), {"kind": "VendorSpec", "secret": 8})


class Settings(unittest.TestCase):
    def test_what_is_missing_is_left_out(self):
        self.assertEqual(settings(SimpleNamespace(), [{}]), {})
        found = settings(fake.vllm_config(cache_config__kv_cache_layout="NHD"), [{}])
        self.assertNotIn("layout", found)
        self.assertNotIn("num_gpu_blocks_override", found)
        self.assertEqual(found["dtype"], "bfloat16")

    def test_what_states_and_encoders_depend_on(self):
        config = fake.vllm_config(
            cache_config__mamba_cache_dtype="auto",
            cache_config__mamba_ssm_cache_dtype="float32",
            model_config__multimodal_config=SimpleNamespace(language_model_only=True),
        )
        found = settings(config, [{}])
        self.assertNotIn("mamba_cache_dtype", found)
        self.assertEqual(found["mamba_ssm_cache_dtype"], "float32")
        self.assertTrue(found["language_model_only"])

    def test_memory_below_nothing_is_none(self):
        self.assertEqual(memory(fake.vllm_config(), [-5, 3]), {"available_memory": 0})

    def test_names(self):
        config = fake.vllm_config(model_config__model="/hub/models--Qwen--Qwen3-8B/snapshots/0a1b2c")
        self.assertEqual(case_name(config), "Qwen3-8B")
        config.parallel_config.data_parallel_size, config.parallel_config.data_parallel_rank = 2, 1
        self.assertEqual(case_name(config), "Qwen3-8B-rank1")


class Draft(unittest.TestCase):
    def test_where_it_begins(self):
        config = fake.vllm_config(speculative_config=SimpleNamespace(method="eagle3", num_speculative_tokens=3))
        target = [f"model.layers.{i}.self_attn.attn" for i in range(4)]
        self.assertEqual(draft_from(config, [*target, "model.layers.4.self_attn.attn"], set()), 4)
        self.assertEqual(draft_from(config, [*target, "mtp.layers.0.self_attn.attn"], set()), 4)
        self.assertIsNone(draft_from(config, target, set()))
        self.assertIsNone(draft_from(config, ["mtp.layers.0.attn", *target], set()))
        self.assertEqual(draft_from(config, [*target, "odd"], {"odd"}), 4)
        config.speculative_config = None
        self.assertIsNone(draft_from(config, [*target, "mtp.layers.0.self_attn.attn"], set()))


class Files(unittest.TestCase):
    def test_lines_are_appended_and_named_apart(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a.jsonl", "a.jsonl.gz"):
                path = os.path.join(folder, name)
                for _ in range(3):
                    append(path, {"id": unused(path, "x")})
                with (gzip.open if name.endswith("gz") else open)(path, "rt") as file:
                    self.assertEqual([json.loads(line)["id"] for line in file], ["x", "x-2", "x-3"])


def full():
    return fake.FullAttentionSpec(dtype=fake.dtype("bfloat16"), num_kv_heads=4)


def full_record():
    return {"kind": "full", "num_kv_heads": 4, "dtype": "bfloat16"}


importlib.import_module("k3plan_vllm.hooks")

if __name__ == "__main__":
    unittest.main()
