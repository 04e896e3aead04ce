# django_shop/settings.py
"""The same shop with Django: its settings."""

import os

from sqlalchemy import make_url

url = make_url(os.environ["SHOP_DATABASE"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.database,
        "USER": url.username,
        "HOST": url.host or url.query.get("host", ""),
    }
}
SEGMENTED = {"URL": os.environ["SHOP_REDIS"]}
INSTALLED_APPS = ["segmented.django", "django_shop"]
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "django_shop.urls"
SECRET_KEY = os.environ.get("SHOP_SECRET", "only for a try")
