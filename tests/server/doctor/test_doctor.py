"""The doctor finds what is wrong and says what to do; whatever it meets, it says so without a traceback."""

import json
import re
import socket
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from asr_model import probe
from asr_model.live.network import PACKAGED_CHECKPOINT
from asr_model.probe import CudaDevice, TorchFacts
from server.access.certificate import expires_at_s
from server.cli import build_cli
from server.configuration.config import MoorageConfig, Tree, load_config
from server.doctor import command, installation, models, service
from server.doctor.finding import Finding, Severity, ok
from server.errors import ConfigError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = CudaDevice(name="H200", total_bytes=140 << 30, free_bytes=139 << 30)
LIGHT = {"MOORAGE_SERVER__PORT": "0", "MOORAGE_LIVE__MODEL": "light-lstm", "MOORAGE_FINAL__MODEL": "none"}
"""A configuration whose models load in no time."""
NO_GPU = TorchFacts(version="2.14", cuda_build=None, devices=(), threads=1)


def config(**sections: Tree) -> MoorageConfig:
    return load_config(environment={}, overrides=dict(sections))


def of(findings: Iterator[Finding] | list[Finding], check: str) -> Finding:
    """The one finding of a check."""
    (found,) = [each for each in findings if each.check == check]
    return found


def certificate(folder: Path, days: int, *, key: ec.EllipticCurvePrivateKey | None = None) -> Tree:
    """Writes a pair whose certificate is good for so many days from NOW."""
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=400))
        .not_valid_after(NOW + timedelta(days=days))
        .sign(own, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        (key or own).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return {"certificate": str(folder / "cert.pem"), "private_key": str(folder / "key.pem")}


class TestWhole:
    def test_this_installation_is_well(self) -> None:
        findings = command.diagnose(None, {"MOORAGE_SERVER__PORT": "0", "MOORAGE_LIVE__DEVICE": "cpu"})
        assert [each for each in findings if each.severity is Severity.FAULT] == []
        assert {
            "python",
            "packages",
            "codecs",
            "configuration",
            "moonshine files",
            "torch",
            "live device",
            "final device",
            "threads",
            "live weights",
            "moonshine weights",
            "memory",
            "live scheduler",
            "final scheduler",
            "address",
            "open files",
            "tls",
        } <= {each.check for each in findings}

    def test_every_fault_of_a_configuration_is_found(self, tmp_path: Path) -> None:
        path = tmp_path / "moorage.toml"
        path.write_text("[server]\nport = 99999\n[live]\ninstances = 0\n")
        found = [each for each in command.diagnose(path, {}) if each.severity is Severity.FAULT]
        assert [each.text.partition(":")[0] for each in found] == ["server.port", "live.instances"]
        assert all(each.advice for each in found)

    def test_options_are_checked_and_the_rest_goes_on(self) -> None:
        findings = command.diagnose(None, {**LIGHT, "MOORAGE_LIVE__OPTIONS__NONSENSE": "1"})
        assert of(findings, "configuration").text.startswith("live.options: light-lstm has no option nonsense")
        assert of(findings, "address").severity is Severity.OK

    def test_a_check_that_breaks_is_a_fault_without_a_traceback(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken() -> Iterator[Finding]:
            yield ok("python", "so far so good")
            raise RuntimeError("oh dear")

        monkeypatch.setattr(installation, "check_python", broken)
        first, second, *_ = command.diagnose(None, LIGHT)
        assert first.text == "so far so good"
        assert second.text == "this check broke: RuntimeError: oh dear"

    @pytest.mark.parametrize(("variable", "code"), [("MOORAGE_SERVER__PORT", 0), ("MOORAGE_SERVER_PORT", 1)])
    def test_exit_code_and_json(self, variable: str, code: int) -> None:
        result = CliRunner().invoke(build_cli(), ["doctor", "--format", "json"], env={**LIGHT, variable: "0"})
        assert result.exit_code == code, result.stdout
        told = json.loads(result.stdout)
        assert told["ok"] is (code == 0)
        assert "Traceback" not in result.output


class TestInstallation:
    def test_it_looks_at_all_that_is_required(self) -> None:
        project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        required = {re.split(r"[<>=; ]", line)[0] for line in project["dependencies"]}
        looked_at = {*installation.PACKAGES, *installation.CODEC_PACKAGES, installation.WEIGHTS_PACKAGE, "torch"}
        assert looked_at == required

    def test_an_old_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installation, "OLDEST_PYTHON", (99, 0))
        assert of(installation.check_python(), "python").severity is Severity.FAULT

    @pytest.mark.parametrize(
        ("packages", "text"),
        [
            ({"not-there-at-all": "x"}, "not-there-at-all is not installed"),
            ({"numpy": "numpy_gone"}, "numpy cannot be loaded: No module named 'numpy_gone'"),
        ],
    )
    def test_a_package_that_is_missing_or_broken(
        self, monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], text: str
    ) -> None:
        monkeypatch.setattr(installation, "PACKAGES", packages)
        found = of(installation.check_packages(), "packages")
        assert (found.severity, found.text) == (Severity.FAULT, text)
        assert found.advice.startswith("pip install")

    def test_a_decoder_that_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installation, "DECODERS", ("flac", "no_such_codec"))
        found = of(installation.check_codecs(), "codecs")
        assert found.severity is Severity.WARNING
        assert "no decoder for no_such_codec" in found.text

    def test_files_that_are_not_as_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installation, "_checksums", lambda package: iter([("a.ort", True), ("b.ort", False)]))
        found = of(installation.check_weights_package(), "moonshine files")
        assert (found.severity, found.text) == (Severity.FAULT, "b.ort: not as installed")

    def test_a_changed_byte_is_seen(self, tmp_path: Path) -> None:
        info = tmp_path / "moonshine_cpp-1.dist-info"
        info.mkdir()
        data = tmp_path / "moonshine_cpp" / "models" / "base-en"
        data.mkdir(parents=True)
        (data / "a.ort").write_bytes(b"abc")
        # SHA-256 of b"abc"
        good = "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"
        (info / "RECORD").write_text(
            f"moonshine_cpp/models/base-en/a.ort,sha256={good},3\nmoonshine_cpp/models/base-en/gone.ort,sha256={good},3\n"
        )
        package = Distribution.at(info)
        a, gone = "moonshine_cpp/models/base-en/a.ort", "moonshine_cpp/models/base-en/gone.ort"
        assert dict(installation._checksums(package)) == {a: True, gone: False}
        (data / "a.ort").write_bytes(b"abd")
        assert dict(installation._checksums(package))[a] is False


class TestModels:
    @pytest.mark.parametrize(
        ("device", "devices", "severity"),
        [
            ("auto", (), Severity.OK),
            ("cpu", (), Severity.OK),
            ("cuda", (), Severity.FAULT),
            ("cuda", (GPU,), Severity.OK),
            ("cuda:1", (GPU,), Severity.FAULT),
            ("cuda:1", (GPU, GPU), Severity.OK),
        ],
    )
    def test_devices(
        self, monkeypatch: pytest.MonkeyPatch, device: str, devices: tuple[CudaDevice, ...], severity: Severity
    ) -> None:
        monkeypatch.setattr(probe, "torch_facts", lambda: replace(NO_GPU, devices=devices))
        found = of(models.check_torch(config(live={"device": device})), "live device")
        assert found.severity is severity
        assert bool(found.advice) == (severity is Severity.FAULT)

    @pytest.mark.parametrize(
        ("live", "final", "severity"),
        [
            ({"instances": 2}, {"instances": 1}, Severity.OK),
            ({"instances": 5}, {"instances": 1}, Severity.WARNING),
            ({"instances": 2, "threads": 4}, {"instances": 1}, Severity.WARNING),
            ({"instances": 2, "threads": 2}, {"model": "none"}, Severity.OK),
        ],
    )
    def test_threads(self, monkeypatch: pytest.MonkeyPatch, live: Tree, final: Tree, severity: Severity) -> None:
        monkeypatch.setattr(probe, "usable_cores", lambda: 4)
        assert of(models.check_torch(config(live=live, final=final)), "threads").severity is severity

    def test_a_checkpoint_that_is_not_there(self) -> None:
        found = of(models.check_weights(config(live={"options": {"checkpoint": "/gone"}})), "live weights")
        assert found.severity is Severity.FAULT
        assert "/gone" in found.text
        assert found.advice == "correct live.options.checkpoint"

    def test_a_checkpoint_that_is_damaged(self, tmp_path: Path) -> None:
        whole = PACKAGED_CHECKPOINT.read_bytes()
        (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
        options: Tree = {"checkpoint": str(tmp_path / "cut.safetensors")}
        assert of(models.check_weights(config(live={"options": options})), "live weights").severity is Severity.FAULT

    def test_weights_that_are_nowhere(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("MOORAGE_MOONSHINE", str(tmp_path))
        found = of(models.check_weights(config()), "moonshine weights")
        assert found.severity is Severity.FAULT
        assert "pip install moonshine-cpp" in found.advice

    @pytest.mark.parametrize(
        ("live", "memory_gib", "severity", "text"),
        [
            ({}, 16, Severity.OK, "measured at the start"),
            ({"slots": 10}, 16, Severity.OK, "20 are asked for"),
            ({"slots": 1000}, 16, Severity.WARNING, "not for 2000"),
            ({}, 1, Severity.WARNING, "models take about"),
        ],
    )
    def test_memory(
        self, monkeypatch: pytest.MonkeyPatch, live: Tree, memory_gib: int, severity: Severity, text: str
    ) -> None:
        monkeypatch.setattr(probe, "torch_facts", lambda: NO_GPU)
        monkeypatch.setattr(models, "_machine_bytes", lambda: memory_gib << 30)
        found = of(models.check_memory(config(live=live)), "memory")
        assert found.severity is severity
        assert text in found.text

    def test_slots_on_a_gpu_are_held_against_its_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe, "torch_facts", lambda: replace(NO_GPU, devices=(GPU,)))
        assert of(models.check_memory(config(live={"slots": 1000})), "gpu memory").severity is Severity.OK

    @pytest.mark.parametrize(("limit", "expected"), [("1073741824", 1 << 30), ("max", None)])
    def test_a_container_counts(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, expected: int | None
    ) -> None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        monkeypatch.setattr(models, "CGROUP_LIMIT", tmp_path / "memory.max")
        found_bytes = models._machine_bytes()
        assert found_bytes is not None
        assert found_bytes == expected if expected else found_bytes > 1 << 30


class TestService:
    def test_a_port_that_is_taken(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            found = of(service.check_port(config(server={"port": port})), "address")
        assert found.severity is Severity.FAULT
        assert found.text == f"127.0.0.1:{port}: cannot be had: Address already in use"
        assert of(service.check_port(config(server={"port": port})), "address").severity is Severity.OK

    def test_a_host_that_is_not_ours(self) -> None:
        chosen = config(server={"host": "192.0.2.1"}, access={"allow_anonymous": True})
        assert of(service.check_port(chosen), "address").severity is Severity.FAULT

    @pytest.mark.parametrize(("connections", "severity"), [(1, Severity.OK), (1_000_000, Severity.WARNING)])
    def test_open_files(self, monkeypatch: pytest.MonkeyPatch, connections: int, severity: Severity) -> None:
        import resource

        monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 4096))
        found = of(service.check_descriptors(config(server={"max_connections": connections})), "open files")
        assert found.severity is severity

    @pytest.mark.parametrize(("days", "severity"), [(-1, Severity.FAULT), (10, Severity.WARNING), (90, Severity.OK)])
    def test_expiry(self, tmp_path: Path, days: int, severity: Severity) -> None:
        chosen = config(tls=certificate(tmp_path, days))
        found = of(service.check_tls(chosen, NOW.timestamp()), "tls")
        assert found.severity is severity
        assert (NOW + timedelta(days=days)).strftime("%Y-%m-%d") in found.text

    def test_a_key_of_another_certificate(self, tmp_path: Path) -> None:
        pair = certificate(tmp_path, 90, key=ec.generate_private_key(ec.SECP256R1()))
        found = of(service.check_tls(config(tls=pair), NOW.timestamp()), "tls")
        assert found.severity is Severity.FAULT
        assert "is not the key of the certificate" in found.text

    def test_no_tls(self) -> None:
        assert of(service.check_tls(config(), 0.0), "tls").severity is Severity.OK
        is_open = config(server={"host": "0.0.0.0"}, access={"allow_anonymous": True})
        assert of(service.check_tls(is_open, 0.0), "tls").severity is Severity.WARNING

    def test_the_certificates_end(self, tmp_path: Path) -> None:
        certificate(tmp_path, 90)
        assert expires_at_s(tmp_path / "cert.pem") == (NOW + timedelta(days=90)).timestamp()
        for path in (tmp_path / "key.pem", tmp_path / "gone.pem"):
            with pytest.raises(ConfigError, match="cannot be read as a certificate"):
                expires_at_s(path)
